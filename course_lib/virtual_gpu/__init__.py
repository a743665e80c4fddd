"""The virtual GPU: PTX translated to native code that checks every access, run by a scheduler."""
