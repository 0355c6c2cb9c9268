//go:build covered

package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime/coverage"
	"strconv"
	"time"
)

// coverDir is where a boxd that was built for measuring leaves its counters; it
// is set by the linker (scripts/cover). A boxd that users get has none of this.
var coverDir string

// The directory is opened before the box closes around boxd, and boxd may be
// killed at any moment: so it writes all the time.
var _ = measure()

func measure() error {
	dir, err := os.OpenRoot(coverDir)
	if err != nil {
		return err
	}
	go func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		var name string
		var last []byte
		for range tick.C {
			var meta, now bytes.Buffer
			if coverage.WriteMeta(&meta) != nil || coverage.WriteCounters(&now) != nil || bytes.Equal(last, now.Bytes()) {
				continue
			}
			// Magic, version, length, entries; then the hash that names the files.
			hash := fmt.Sprintf("%x", meta.Bytes()[24:40])
			if name == "" {
				name = fmt.Sprintf("covcounters.%s.%d.%d", hash, os.Getpid(), time.Now().UnixNano())
			}
			last = now.Bytes()
			if replace(dir, name, last) == nil {
				_ = replace(dir, "covmeta."+hash, meta.Bytes())
			}
		}
	}()
	return nil
}

func replace(dir *os.Root, name string, data []byte) error {
	tmp := ".tmp" + strconv.FormatInt(time.Now().UnixNano(), 36)
	if err := dir.WriteFile(tmp, data, 0o644); err != nil {
		return err
	}
	return dir.Rename(tmp, name)
}
