// references/snapshot.cpp
