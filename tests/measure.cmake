# tests of measure
