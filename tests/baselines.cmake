# tests of baselines
