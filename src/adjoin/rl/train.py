"""What `torchrun --nproc-per-node 2 -m adjoin.rl.train TASK` runs; the function is in `adjoin.rl.training`."""

import sys

from adjoin.rl.command import main

if __name__ == "__main__":
    sys.exit(main())
