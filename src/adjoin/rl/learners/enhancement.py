"""The two ways in which Qiao et al. (ICML 2021) add gradients of a simulator to MBPO; `mbpo` has their formulas."""

from dataclasses import dataclass

from adjoin.rl.learner import register_learner
from adjoin.rl.learners.mbpo import MBPO, MBPOOptions
from adjoin.rl.ranges import Switch, Whole


@dataclass(frozen=True)
class SampleEnhancementOptions(MBPOOptions):
    """Options of sample enhancement: nine more samples around each true one."""

    extra_samples: Whole = 9


@register_learner
class SampleEnhancement(MBPO):
    """Model-based policy optimization with sample enhancement."""

    name = "sample_enhancement"
    Options = SampleEnhancementOptions


@dataclass(frozen=True)
class PolicyEnhancementOptions(MBPOOptions):
    """Options of policy enhancement."""

    policy_enhancement: Switch = True
    model: Switch = False


@register_learner
class PolicyEnhancement(MBPO):
    """Soft actor-critic whose actor climbs the gradient through the simulator: policy enhancement."""

    name = "policy_enhancement"
    Options = PolicyEnhancementOptions
