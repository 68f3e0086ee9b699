"""netdra's image: what the Containerfile runs (`rootfs`), and the build that `make image` and the tests start."""
