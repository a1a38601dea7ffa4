# tests of harness
