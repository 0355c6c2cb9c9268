package files

import "golang.org/x/sys/unix"

// onlyPath opens a directory to go on from, which takes no right to read it.
const onlyPath = unix.O_PATH
