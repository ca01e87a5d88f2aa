"""What is deployed, made without Docker: for each function a folder with its code, what that imports, and the model."""
