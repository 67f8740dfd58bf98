"""One CUDA graph in the place of thousands of launches."""

import gc
from collections.abc import Callable, Sequence
from typing import Any

import torch


class Captured:
    """A function without arguments that is recorded as a CUDA graph when it is first called, and replayed after that.

    The function must read and write the same tensors each time, and must not ask for a number on the CPU. On a CPU it
    is called as it is.

    Args:
        function: What to record. It returns tensors, whose memory is written again by each replay.
        device: Where it runs.
        generators: The generators that it draws from.
        keep: The tensors that it changes: the calls before the recording, which warm up, leave no trace in them.
        enabled: Whether to record at all.
    """

    WARM_UP = 2  # calls before the recording

    def __init__(
        self,
        function: Callable[[], Any],
        device: torch.device,
        generators: Sequence[torch.Generator] = (),
        keep: Callable[[], Sequence[torch.Tensor]] = list,
        enabled: bool = True,
    ):
        self._function, self._generators, self._keep = function, generators, keep
        self._enabled = enabled and device.type == "cuda"
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: Any = None

    def __call__(self) -> Any:
        """Call the function, or replay it."""
        if not self._enabled:
            return self._function()
        if self._graph is None:
            self._record()
        assert self._graph is not None
        self._graph.replay()
        return self._result

    def _record(self) -> None:
        tensors = self._keep()
        before = [x.detach().clone() for x in tensors]  # a graph of gradients to weights would stay on this stream
        states = [generator.get_state() for generator in self._generators]

        def restore() -> None:
            with torch.no_grad():
                for tensor, value in zip(tensors, before, strict=True):
                    tensor.copy_(value)
            for generator, state in zip(self._generators, states, strict=True):
                generator.set_state(state)

        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(self.WARM_UP):
                self._function()
        torch.cuda.current_stream().wait_stream(stream)
        restore()
        graph = torch.cuda.CUDAGraph()
        for generator in self._generators:
            graph.register_generator_state(generator)
        # Older graphs that nothing uses any more must not be freed while this one is recorded: CUDA refuses that.
        gc.collect()
        collects = gc.isenabled()
        gc.disable()
        try:
            # All matrix products of a stream share memory of cuBLAS. Graphs of other threads must not write to it.
            with torch.cuda.graph(graph, stream=stream):
                self._result = self._function()
        finally:
            if collects:
                gc.enable()
        restore()
        self._graph = graph
