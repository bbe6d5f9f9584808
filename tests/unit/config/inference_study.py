"""A study of the task `inference` with every kind of factor that it needs."""

STUDY = """
title: Answers
question: How fast?
task: inference
source: {title: Our own question}
settings:
  model: {name: bridgetower, size: tiny}
  inference: {preprocessing: out}
  loader: {decode: host, workers: 0, max_tokens: 32}
protocol: {steps: 5, warmup_steps: 1, repeats: 1, evaluate: false}
factors:
  head:
    bundles:
      contrastive: {inference.head: contrastive}
      clip: {model.name: clip, loader.max_tokens: 77}
    levels: [contrastive, clip]
  batch: {sets: train.batch_size, levels: [1, 64]}
baseline: {head: contrastive, batch: 1}
exclude:
  - {levels: {batch: 64}, unless_able: large_models, why: It takes long on a small device.}
"""
