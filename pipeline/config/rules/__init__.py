"""What a declaration must not say: tables of rules by section, and the engine that reads them."""
