"""MNIST's files, and the two nets that Lockstep has for them."""

import gzip
import os

import torch
from torch import nn


def read_idx(file, header):
    with gzip.open(file) as stream:
        return torch.frombuffer(bytearray(stream.read()[header:]), dtype=torch.uint8)


def read_set(folder, name):
    """Returns the images as rows of 784 bytes, and their labels."""
    images = read_idx(os.path.join(folder, f"{name}-images-idx3-ubyte.gz"), 16).view(-1, 784)
    return images, read_idx(os.path.join(folder, f"{name}-labels-idx1-ubyte.gz"), 8).long()


def block(inputs, outputs):
    return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]


def make_net(size, classes=10):
    if size == "small":
        layers = [*block(1, 32), nn.Flatten(), nn.Linear(6272, 64), nn.ReLU(), nn.Linear(64, classes)]
    else:
        layers = [*block(1, 128), *block(128, 256), *block(256, 512), nn.Flatten(), nn.Linear(4608, 512), nn.ReLU()]
        layers += [nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, classes)]
    return nn.Sequential(*layers)


def one_channel_nhwc(rows, height, width):
    # contiguous(channels_last) changes nothing with one channel, and then the convolution returns NCHW.
    return rows.reshape(-1, height, width, 1).permute(0, 3, 1, 2)


def images_channels_last(images):
    if images.shape[1] == 1:
        return one_channel_nhwc(images, *images.shape[2:])
    return images.contiguous(memory_format=torch.channels_last)


def channels_last(net):
    """Returns a net of images in this order, changed in place."""
    net = net.to(memory_format=torch.channels_last)
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d) and layer.weight.shape[1] == 1 and layer.groups == 1:
            layer.weight.data = one_channel_nhwc(layer.weight.data.contiguous(), *layer.kernel_size)
    return net
