"""PyTorch, where it is installed, and where it computes."""

from __future__ import annotations

from typing import Any

from waysout.errors import InputError, MissingExtra, shown


def import_torch() -> Any:
    """Return the torch package, or say how to get it."""
    try:
        import torch
    except ImportError:
        raise MissingExtra("torch", "torch") from None
    return torch


def choose_device(name: str) -> Any:
    """Return the device of a name; ``auto`` is a GPU where there is one."""
    torch = import_torch()
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0][:120]
        raise InputError(f"device {shown(name)} cannot be used here ({reason}): try cpu") from None
    return device
