"""Robot files: URDF and MJCF in, URDF and safetensors out. One module per format."""
