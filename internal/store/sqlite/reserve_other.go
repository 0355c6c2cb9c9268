//go:build !linux

package sqlite

import "os"

func growTo(*os.File, int64) error          { return nil }
func keepFrom(*os.File, int64, int64) error { return nil }
func diskSpace(string) (free, total int64)  { return -1, 0 }
