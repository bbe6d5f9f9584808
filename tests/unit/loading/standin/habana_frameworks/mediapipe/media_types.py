"""Names of types and modes."""


class dtype:
    NDT = "ndt"
    UINT32 = "uint32"
    FLOAT32 = "float32"


class ftype:
    BI_LINEAR = 3
    BICUBIC = 4


class imgtype:
    RGB_I = "rgb-i"
    RGB_P = "rgb-p"


class randomCropType:
    CENTER_CROP = 4


class readerOutType:
    FILE_LIST = 0
    BUFFER_LIST = 1
