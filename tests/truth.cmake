# tests of truth
