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

// coverDir is the directory where a boxd built to measure test coverage writes its counters. The
// linker sets it (scripts/cover). A released boxd does not contain this file.
var coverDir string

// measure opens coverDir before boxd enters its jail. Then it writes the test coverage
// counters there again and again, because boxd may be killed at any moment.
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
			// The meta data starts with magic, version, length and entries; then comes the hash that is in the names of the
			// coverage files.
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
