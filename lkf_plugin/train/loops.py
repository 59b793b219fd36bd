"""Lightning's loop counters in a checkpoint, set to one canonical state.

Lightning restarts differently depending on the hook in which a checkpoint was taken. Ours are all
taken at the end of an optimizer step of one endless epoch, some after that step's validation; they
are written down as if all were taken in ``on_train_batch_end``. From there Lightning goes on with
the next batch and does not validate again.
"""

from __future__ import annotations

from typing import Any


def pin_progress(checkpoint: dict[str, Any], accumulate_grad_batches: int) -> None:
    """Rewrites the fit loop's counters from ``global_step`` alone.

    Args:
        checkpoint: as Lightning dumped it; changed in place.
        accumulate_grad_batches: micro-batches per step.
    """
    step = checkpoint["global_step"]
    batches = step * accumulate_grad_batches
    loop = checkpoint["loops"]["fit_loop"]
    done = {"ready": batches, "started": batches, "processed": batches, "completed": batches - 1}
    running = {"ready": 1, "started": 1, "processed": 0, "completed": 0}
    for scope in ("total", "current"):
        loop["epoch_loop.batch_progress"][scope].update(done)
        loop["epoch_progress"][scope].update(running)
        loop["epoch_loop.val_loop.batch_progress"][scope].update(dict.fromkeys(done, 0))
    loop["epoch_loop.batch_progress"]["is_last_batch"] = False
    loop["epoch_loop.val_loop.batch_progress"]["is_last_batch"] = False
    # gradients that were dropped in the middle of a step have been zeroed once more
    zeroed = loop["epoch_loop.automatic_optimization.optim_progress"]["optimizer"]["zero_grad"]
    for scope in ("total", "current"):
        zeroed[scope].update(dict.fromkeys(zeroed[scope], step))
    loop["epoch_loop.state_dict"]["_batches_that_stepped"] = step - 1
    checkpoint["epoch"] = 0
