"""What draws or prints scores: the HTML page, plots, tables as text, TensorBoard's projector."""
