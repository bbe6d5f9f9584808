"""Batches for any model, and what a step of it gives."""

import torch


def batch(built, rows=2, tokens=16, *, padded=True):
    """A batch as all loaders make it."""
    torch.manual_seed(2)
    side = built.image_px
    pixels = torch.randn(rows, 3, side, side)
    if built.scores == "accuracy":
        classes = torch.arange(rows).view(rows, 1)
        mask = torch.ones_like(classes)
        return _named(pixels, classes, mask)
    ids = torch.randint(4, 16, (rows, tokens))
    ids[:, -1] = built.tokenizer.eos_token_id
    mask = torch.ones_like(ids)
    if padded:  # a different length in each row, the end token before the padding
        for row in range(rows):
            ids[row, tokens - 1 - row] = built.tokenizer.eos_token_id
            ids[row, tokens - row :] = built.tokenizer.pad_token_id
            mask[row, tokens - row :] = 0
    return _named(pixels, ids, mask)


def _named(pixels, ids, mask):
    values = {"pixel_values": pixels, "input_ids": ids, "attention_mask": mask}
    return {**values, "return_loss": True}


def without_dropout(model):
    """Dropout draws differ between kernels: equality is of what lies around them."""
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model


def step(built, *, bf16=False, training=True, seed=3, **options):
    """Loss and gradients by name, of one batch; the same random draws for the same seed."""
    model = built.model.train(training)
    model.zero_grad()
    inputs = batch(built, **options)
    torch.manual_seed(seed)
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        loss = model(**inputs)["loss"]
    loss.backward()
    grads = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    return loss.detach(), grads


def norm(grads):
    """Norm of all gradients together."""
    return torch.stack([grad.float().norm() for grad in grads.values()]).norm()
