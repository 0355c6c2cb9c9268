//go:build !linux

package boxproc

import "os"

func replace(from, to string) error {
	if _, err := os.Stat(to); err != nil {
		return err
	}
	return os.Rename(from, to)
}
