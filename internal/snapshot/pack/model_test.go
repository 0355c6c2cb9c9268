package pack

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// step is a change of the disk that the store asked for.
type step struct {
	op       string // create, overwrite, write, sync, link, rename, remove, syncdir
	path, to string
	data     []byte
}

// stepDisk is the disk of the operating system. It calls before with the number of each step and
// does not take the step if before returns an error. It records the steps that it took.
type stepDisk struct {
	OSDisk
	before func(n int) error
	steps  []step
	n      int
}

func (d *stepDisk) take(s step, do func() error) error {
	d.n++
	if d.before != nil {
		if err := d.before(d.n - 1); err != nil {
			return &os.PathError{Op: s.op, Path: s.path, Err: err}
		}
	}
	err := do()
	if err == nil {
		d.steps = append(d.steps, s)
	}
	return err
}

func (d *stepDisk) Create(path string) (f DiskFile, err error) {
	err = d.take(step{op: "create", path: path}, func() error {
		f, err = d.OSDisk.Create(path)
		return err
	})
	return stepFile{f, d, path}, err
}

func (d *stepDisk) Overwrite(path string) (f DiskFile, err error) {
	err = d.take(step{op: "overwrite", path: path}, func() error {
		f, err = d.OSDisk.Overwrite(path)
		return err
	})
	return stepFile{f, d, path}, err
}

func (d *stepDisk) Link(from, to string) error {
	return d.take(step{op: "link", path: from, to: to}, func() error { return d.OSDisk.Link(from, to) })
}

func (d *stepDisk) Rename(from, to string) error {
	return d.take(step{op: "rename", path: from, to: to}, func() error { return d.OSDisk.Rename(from, to) })
}

func (d *stepDisk) Remove(path string) error {
	return d.take(step{op: "remove", path: path}, func() error { return d.OSDisk.Remove(path) })
}

func (d *stepDisk) SyncDir(dir string) error {
	return d.take(step{op: "syncdir", path: dir}, func() error { return d.OSDisk.SyncDir(dir) })
}

type stepFile struct {
	DiskFile
	disk *stepDisk
	path string
}

func (f stepFile) Write(b []byte) (n int, err error) {
	err = f.disk.take(step{op: "write", path: f.path, data: bytes.Clone(b)}, func() error {
		n, err = f.DiskFile.Write(b)
		return err
	})
	return n, err
}

func (f stepFile) Sync() error {
	return f.disk.take(step{op: "sync", path: f.path}, f.DiskFile.Sync)
}

// model is the content of a disk: what was written, and what of it is certain to be durable.
type model struct {
	files map[string]*modelFile
	// synced are the names at the last sync of the directory, and changes those since.
	synced  map[string]*modelFile
	changes []change
}

type modelFile struct {
	written, synced []byte
	// at is where the next write goes.
	at int
}

func (f *modelFile) write(b []byte) {
	f.written = append(f.written[:f.at:f.at], append(b, f.written[min(f.at+len(b), len(f.written)):]...)...)
	f.at += len(b)
}

// parts returns what may be on the disk of content that is not synced.
func (f *modelFile) parts() (out [][]byte) {
	if len(f.written) > len(f.synced) {
		rest := f.written[len(f.synced):]
		for _, r := range [][]byte{nil, rest[:len(rest)/2], make([]byte, len(rest)), rest} {
			out = append(out, slices.Concat(f.synced, r))
		}
		return out
	}
	// A disk writes the sectors of a file that is overwritten in any order.
	const sector = 512
	out = [][]byte{f.synced, f.written}
	for at := 0; at < len(f.written); at += sector {
		if end := min(at+sector, len(f.written)); !bytes.Equal(f.synced[at:end], f.written[at:end]) {
			without, only := bytes.Clone(f.written), bytes.Clone(f.synced)
			copy(without[at:], f.synced[at:end])
			copy(only[at:], f.written[at:end])
			out = append(out, without, only)
		}
	}
	return out
}

// change gives a file a name, takes one away, or both.
type change struct {
	from, to string
	file     *modelFile
}

func (c change) apply(names map[string]*modelFile) map[string]*modelFile {
	delete(names, c.from)
	if c.to != "" {
		names[c.to] = c.file
	}
	return names
}

// after returns the disk after the steps.
func after(steps []step) *model {
	m := &model{files: map[string]*modelFile{}, synced: map[string]*modelFile{}}
	for _, s := range steps {
		name := filepath.Base(s.path)
		switch s.op {
		case "create":
			m.change(change{to: name, file: &modelFile{}})
		case "overwrite":
			m.files[name].at = 0
		case "write":
			m.files[name].write(bytes.Clone(s.data))
		case "link":
			m.change(change{to: filepath.Base(s.to), file: m.files[name]})
		case "sync":
			m.files[name].synced = bytes.Clone(m.files[name].written)
		case "rename":
			m.change(change{from: name, to: filepath.Base(s.to), file: m.files[name]})
		case "remove":
			m.change(change{from: name})
		case "syncdir":
			m.synced, m.changes = maps.Clone(m.files), nil
		}
	}
	return m
}

func (m *model) change(c change) {
	c.apply(m.files)
	m.changes = append(m.changes, c)
}

// states returns what may be on the disk after a power cut: of the changes of names since the last
// sync of the directory the first ones or a single one, and of content that is not synced nothing,
// half, zeros or all; of content that was overwritten any sector alone, or all but one.
func (m *model) states() (out []map[string][]byte) {
	all := []map[string]*modelFile{m.synced}
	for n, c := range m.changes {
		all = append(all, c.apply(maps.Clone(all[n])))
	}
	for _, c := range m.changes {
		all = append(all, c.apply(maps.Clone(m.synced)))
	}
	for _, names := range all {
		most := 1
		for unsynced := 0; unsynced < most; unsynced++ {
			state := map[string][]byte{}
			for name, f := range names {
				parts := f.parts()
				most = max(most, len(parts))
				state[name] = parts[min(unsynced, len(parts)-1)]
			}
			out = append(out, state)
		}
	}
	return out
}

// digest identifies a state.
func digest(state map[string][]byte) [32]byte {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(state)) {
		fmt.Fprintf(h, "%s %d\n", name, len(state[name]))
		h.Write(state[name])
	}
	return [32]byte(h.Sum(nil))
}
