#include "attn/cli/cli.h"

int main(int argc, char** argv) { return attn::run_cli(argc, argv); }
