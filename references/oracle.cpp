// references/oracle.cpp
