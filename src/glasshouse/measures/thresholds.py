"""From which PSNR on an image counts as rebuilt."""

RECOVERED = 18.0
"""From this PSNR on, in dB, an image counts as recovered."""

NEAR_EXACT = 30.0
"""From this PSNR on, in dB, an image is almost the original: where all images look alike, some other image
often reaches `RECOVERED`, but not this."""
