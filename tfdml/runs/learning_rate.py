"""The learning rate over the steps of a run."""


def learning_rate(recipe):
    from keras.optimizers.schedules import CosineDecay, ExponentialDecay

    if recipe.schedule == "step":
        factor = 0.1 if recipe.decay_factor is None else recipe.decay_factor
        return ExponentialDecay(recipe.learning_rate, recipe.decay_every, factor, staircase=True)
    steps = max(1, recipe.steps - recipe.warmup_steps)
    lowest = 0.0 if recipe.schedule == "cosine" else 1.0  # share of the learning rate
    if not recipe.warmup_steps:
        return CosineDecay(recipe.learning_rate, steps, alpha=lowest)
    warmup = {"warmup_target": recipe.learning_rate, "warmup_steps": recipe.warmup_steps}
    return CosineDecay(0.0, steps, alpha=lowest, **warmup)
