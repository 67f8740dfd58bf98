"""A quadruped falls from three heights and stands; then its gains are tuned by the gradient of the whole landing."""

import time

import torch

import adjoin

DT = 2e-3


def main() -> None:
    model = adjoin.robots.load("go2").with_servos(kp=60.0, kd=2.0)
    home = model.keyframe("home")
    feet = [(f"{leg}_foot", "ground") for leg in ("FL", "FR", "RL", "RR")]
    sim = adjoin.Simulator(model, dt=DT, pairs=feet, contact=adjoin.PGS(adjoint=adjoin.Implicit()))

    # One rollout for all three: one launch.
    q = torch.tensor(home.q).repeat(3, 1)
    heights = torch.tensor([0.0, 0.1, 0.2])
    q[:, 2] += heights
    control = torch.tensor(home.control).expand(1000, 3, model.nu)
    path = sim.rollout(sim.state(q), control, contacts=True)
    force = path.outputs["force"][..., 2].sum(-1) / (9.81 * model.mass)
    print("dropped from   lands after   greatest force    after 2 s: force   base height")
    for i, height in enumerate(heights.tolist()):
        landed = DT * int((force[:, i] > 0.0).byte().argmax())
        print(
            f"{height:10.1f} m {landed:11.3f} s {force[:, i].max():12.1f} weights"
            f" {force[-1, i]:13.2f} weights {path.q[-1, i, 2]:9.3f} m"
        )

    # The gradient of a landing to all gains: one launch back. The loss is unrest and sag over the last half second.
    steps = 500
    values = sim.model.parameters()
    gains = torch.stack([values["actuator_gain"], -values["actuator_bias"][:, 2]]).requires_grad_()  # kp and kd

    def landing(gains: torch.Tensor) -> torch.Tensor:
        kp, kd = gains
        params = {"actuator_gain": kp, "actuator_bias": torch.stack([torch.zeros_like(kp), -kp, -kd], -1)}
        path = sim.rollout(sim.state(q[1:2]), control[:steps, 1:2], params)
        half = path.q[steps // 2 :, :, 7:] - q[0, 7:]
        return half.square().mean() + 1e-3 * path.v[steps // 2 :].square().mean()

    landing(gains).backward()  # the first call compiles
    start = time.perf_counter()
    loss = landing(gains)
    forward = time.perf_counter() - start
    loss.backward()
    both = time.perf_counter() - start
    print(f"\n{steps} steps: {forward * 1e3:.1f} ms forward, {(both - forward) * 1e3:.1f} ms back\n")

    optimizer = torch.optim.Adam([gains], lr=2.0)
    print("iteration      loss    thigh: kp     kd    calf: kp     kd")
    for iteration in range(31):
        optimizer.zero_grad()
        loss = landing(gains)
        loss.backward()
        if iteration % 10 == 0:
            (thigh, calf), (thigh_damping, calf_damping) = gains[:, 1:3].tolist()
            print(f"{iteration:9} {loss:9.2e} {thigh:12.1f} {thigh_damping:6.1f} {calf:11.1f} {calf_damping:6.1f}")
        optimizer.step()
        gains.data.clamp_(min=0.1)


if __name__ == "__main__":
    main()
