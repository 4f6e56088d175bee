"""Image files: which there are, what their headers say, and their pixels in TensorFlow."""
