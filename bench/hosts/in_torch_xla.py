"""A ResNet and a transformer encoder in torch_xla 2.9.0: its own CPU device against the plugin, results and times.

    pip install torch==2.9.0 torch_xla==2.9.0
    python in_torch_xla.py --plugin /path/of/libhlo_dispatch_pjrt.so

hlo-dispatch need not be in this environment: HLO_DISPATCH_PYTHON names the interpreter of the one that it is in, and
HLO_DISPATCH_PJRT_RUNTIME the runtime.
"""

# pyright: basic, reportMissingImports=false
from __future__ import annotations

import argparse
import ctypes
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

COMPILES = 3
"""Fresh processes on the plugin before the one that is timed: each measures what the one before had no time for."""


def models():
    """Name, module and input of each."""
    import torch
    from torch import nn

    torch.manual_seed(0)

    class Bottleneck(nn.Module):
        def __init__(self, before: int, width: int, stride: int) -> None:
            super().__init__()
            after = 4 * width
            self.main = nn.Sequential(
                nn.Conv2d(before, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                nn.Conv2d(width, after, 1, bias=False), nn.BatchNorm2d(after),
            )  # fmt: skip
            self.side = nn.Identity()
            if stride > 1 or before != after:
                self.side = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

        def forward(self, x):
            return torch.relu(self.main(x) + self.side(x))

    blocks, before = [], 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for number in range(count):
            blocks.append(Bottleneck(before, width, stride if number == 0 else 1))
            before = 4 * width
    head = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    resnet = nn.Sequential(*head, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 1000))
    layer = nn.TransformerEncoderLayer(768, 12, 3072, activation="gelu", batch_first=True)
    yield "ResNet50", resnet, torch.randn(1, 3, 224, 224)
    yield "transformer encoder, 4 layers, 128 tokens", nn.TransformerEncoder(layer, 4), torch.randn(1, 128, 768)


def run(folder: Path, runs: int) -> None:
    """Run each on this process's device, keep its result, print its time."""
    import torch
    import torch_xla

    device = torch_xla.device()
    for number, (name, model, x) in enumerate(models()):
        model, x = model.eval().to(device), x.to(device)
        with torch.no_grad():
            start = time.perf_counter()
            np.save(folder / f"{os.environ['PJRT_DEVICE']}{number}.npy", model(x).cpu().numpy())
            first = time.perf_counter() - start
            times, processor = [], []
            for _ in range(runs):
                start, spent = time.perf_counter(), time.process_time()
                model(x).cpu()
                processor.append(1e3 * (time.process_time() - spent))
                times.append(1e3 * (time.perf_counter() - start))
        times.sort()
        print(
            f"  {name}: {times[runs // 2]:.1f} ms, least {times[0]:.1f}; processor {min(processor):.1f};"
            f" the first {first:.1f} s",
            flush=True,
        )
    matrix = torch.randn(64, 64, device=device)
    factor = torch.linalg.cholesky(matrix @ matrix.T + 64 * torch.eye(64, device=device))
    print(f"  Cholesky: {float(factor.sum()):.4f}")
    if os.environ["PJRT_DEVICE"] == "LIBRARY":
        library = ctypes.CDLL(os.environ["PJRT_LIBRARY_PATH"])
        library.hlo_dispatch_pjrt_failure.restype = ctypes.c_char_p
        counts = [f"{library.hlo_dispatch_pjrt_count(kind.encode())} {kind}" for kind in ("dispatched", "unchanged")]
        print(f"  programs: {', '.join(counts)} {library.hlo_dispatch_pjrt_failure().decode()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plugin", required=True)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.folder:
        run(Path(options.folder), options.runs)
        return
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--plugin", options.plugin, "--folder", folder, "--runs"]
        for device, variables in (
            ("CPU", {"PJRT_DEVICE": "CPU"}),
            ("plugin", {"PJRT_DEVICE": "LIBRARY", "PJRT_LIBRARY_PATH": options.plugin}),
        ):
            for _ in range(COMPILES - 1 if device == "plugin" else 0):
                done = [*command, "1"]
                subprocess.run(done, check=True, env=os.environ | variables, stdout=subprocess.DEVNULL)
            print(device, flush=True)
            subprocess.run([*command, str(options.runs)], check=True, env=os.environ | variables)
        for number in range(2):
            expected, got = (np.load(Path(folder) / f"{name}{number}.npy") for name in ("CPU", "LIBRARY"))
            print(f"difference {np.abs(got - expected).max() / np.abs(expected).max():.1e}")


if __name__ == "__main__":
    main()
