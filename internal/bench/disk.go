package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfast-run/holdfast/internal/image"
)

// imageSize is enough for the snapshots of a file of 1 GB, and for copies of a tree.
const imageSize = 6 << 30

// onFreshDisk measures on a fresh ext4 file system in an image file, so that neither a full disk nor the remains
// of other work distort comparisons. If none can be mounted, it measures in the directory of the run, and
// the names of the figures say so.
func (p *pass) onFreshDisk(measure func(*pass) error) error {
	on := *p
	on.dir = filepath.Join(p.dir, "disk")
	file := on.dir + ".img"
	if err := mountFresh(file, on.dir); err != nil {
		fmt.Fprintf(p.cfg.Progress, "  no fresh disk image: %v\n", err)
		on.dir, on.where = p.dir, ", in the data directory"
		err = measure(&on)
		p.out = on.out
		return errors.Join(err, os.RemoveAll(file))
	}
	err := measure(&on)
	p.out = on.out
	return errors.Join(err, image.Unmount(on.dir), os.Remove(file))
}

func mountFresh(file, dir string) error {
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = image.Make(file, imageSize)
	}
	if err == nil {
		// Reserve allocates all blocks of the image now. Otherwise the first write to each block would take longer than later
		// ones.
		err = image.Reserve(file, imageSize)
	}
	if err == nil {
		err = image.Mount(file, dir)
	}
	return err
}
