# tests of references
