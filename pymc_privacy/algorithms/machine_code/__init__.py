"""Keep machine code on disk, bind it to a model's functions, call these by address."""
