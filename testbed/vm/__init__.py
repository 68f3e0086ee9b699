"""An SR-IOV node without SR-IOV hardware: a QEMU machine that boots the host's own root with a distribution kernel.

`ingredients` gets QEMU and the kernel, `hardware` states what the machine has, `initramfs` and the two shell scripts
bring it up, `machine` runs one command in it. Only the standard library is used, as in all of the test bed.
"""
