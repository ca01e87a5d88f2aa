"""Where the parts come from: their licences, a bill of materials, and what is known against them."""
