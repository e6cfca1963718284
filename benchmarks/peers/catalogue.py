"""The nets of images that Lockstep has, as torchvision and mnist.py make them, in channels-last order."""

import mnist
import torch
from torch import nn


def make_net(name, classes):
    if name.startswith("mnist"):
        return mnist.channels_last(mnist.make_net(name[len("mnist-"):], classes))
    import torchvision

    net = getattr(torchvision.models, name.removesuffix("-cifar"))(num_classes=classes)
    if name == "resnet18-cifar":
        net.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        net.maxpool = nn.Identity()
    return net.to(memory_format=torch.channels_last)
