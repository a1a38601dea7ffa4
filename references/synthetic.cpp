// references/synthetic.cpp
