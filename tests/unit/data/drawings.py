"""Small pictures and what they look like as files."""

import io

from PIL import Image, ImageDraw


def drawing(size=(64, 48), mode="RGB", shade=0):
    """A picture with some content; `shade` makes it differ from others."""
    image = Image.new("RGB", size, (250, 250, 250))
    draw = ImageDraw.Draw(image)
    draw.ellipse((8, 8, 40, 40), fill=(200, 30 + shade % 200, 30))
    draw.line((0, 0, *size), fill=(0, 0, shade % 250), width=3)
    return image.convert(mode)


def encoded(image, kind="JPEG", **options):
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()
