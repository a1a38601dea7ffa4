# tests of device
