// Command stub records the name it was started by, and does nothing else.
package main

import (
	"os"
	"path/filepath"
)

func main() {
	f, err := os.OpenFile("/log", os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		os.Exit(1)
	}
	_, _ = f.WriteString(filepath.Base(os.Args[0]) + "\n")
}
