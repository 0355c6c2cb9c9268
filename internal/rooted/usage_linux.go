package rooted

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxLinked bounds how many files with several names are remembered.
const maxLinked = 100_000

// node is a directory still to be read, by its name in its parent: a path of
// any length without one string for each.
type node struct {
	parent *node
	name   string
}

// counter is one measurement under way.
type counter struct {
	Usage
	top    int
	most   int
	linked map[[2]uint64]bool
	queue  []*node
}

func syncFS(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return &os.PathError{Op: "syncfs", Path: dir, Err: err}
	}
	return nil
}

func space(dir string) (Space, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return Space{}, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return Space{
		Bytes: int64(st.Blocks) * st.Bsize, Free: int64(st.Bavail) * st.Bsize,
		Files: int64(st.Files), FreeFiles: int64(st.Ffree),
	}, nil
}

func usage(ctx context.Context, dir string, most int) (Usage, error) {
	top, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return Usage{}, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(top)
	c := &counter{top: top, most: most, linked: map[[2]uint64]bool{}}
	var st unix.Stat_t
	if err := unix.Fstat(top, &st); err != nil {
		return Usage{}, err
	}
	c.add(&st)
	c.queue = []*node{nil}
	for len(c.queue) > 0 && ctx.Err() == nil {
		n := c.queue[len(c.queue)-1]
		c.queue = c.queue[:len(c.queue)-1]
		if c.Entries >= c.most {
			c.Partial = true
			break
		}
		if err := c.dir(ctx, n); err != nil && !errors.Is(err, syscall.ENOENT) {
			c.Partial = true
		}
	}
	return c.Usage, nil
}

func (c *counter) add(st *unix.Stat_t) {
	c.Entries++
	if st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		id := [2]uint64{uint64(st.Dev), st.Ino}
		if c.linked[id] {
			return
		}
		if len(c.linked) < maxLinked {
			c.linked[id] = true
		}
	}
	c.Bytes += st.Blocks * 512
}

// dir counts the entries of one directory and queues those below.
func (c *counter) dir(ctx context.Context, n *node) error {
	fd, err := c.open(n)
	if err != nil {
		return err
	}
	list := os.NewFile(uintptr(fd), ".")
	defer list.Close()
	for ctx.Err() == nil {
		names, err := list.Readdirnames(256)
		for _, name := range names {
			if c.Entries >= c.most {
				c.Partial = true
				return nil
			}
			var st unix.Stat_t
			if unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT) != nil {
				continue // it went away
			}
			c.add(&st)
			if st.Mode&unix.S_IFMT == unix.S_IFDIR {
				c.queue = append(c.queue, &node{n, name})
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// open opens a directory from the top, in pieces that fit a path.
func (c *counter) open(n *node) (int, error) {
	var names []string
	for ; n != nil; n = n.parent {
		names = append(names, n.name)
	}
	fd, err := openBeneath(c.top, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	for i := len(names); i > 0 && err == nil; {
		var piece strings.Builder
		for ; i > 0 && piece.Len()+len(names[i-1]) < 4000; i-- {
			if piece.Len() > 0 {
				piece.WriteByte('/')
			}
			piece.WriteString(names[i-1])
		}
		var next int
		next, err = openBeneath(fd, piece.String(), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK)
		unix.Close(fd)
		fd = next
	}
	return fd, err
}
