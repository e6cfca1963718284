"""The nets of images that Lockstep has, as torchvision and mnist.py make them."""

import mnist
from torch import nn


def make_net(name, classes):
    if name.startswith("mnist"):
        return mnist.make_net(name[len("mnist-"):], classes)
    import torchvision

    net = getattr(torchvision.models, name.removesuffix("-cifar"))(num_classes=classes)
    if name == "resnet18-cifar":
        net.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        net.maxpool = nn.Identity()
    return net
