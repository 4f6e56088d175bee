"""What a run is: its recipe, folders, images, model and outcome."""
