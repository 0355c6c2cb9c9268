package agentcli

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/durable"
)

// Limits for one package. Pinned packages are far below them, so a larger download is not a pinned package.
const (
	maxPacked   = 512 << 20
	maxUnpacked = 2 << 30
	maxEntries  = 50_000
)

// url returns the URL of a package in a registry.
func (k pkg) url(registry string) string {
	return fmt.Sprintf("%s/%s/-/%s-%s.tgz", registry, k.Name, path.Base(k.Name), k.Version)
}

// fetch downloads a package into a file and checks that it is the pinned one, before its content
// is used.
func (s *Store) fetch(ctx context.Context, k pkg, to string, tell func(got, total int64)) error {
	url := k.url(s.cfg.Registry)
	out := func(err error) error {
		return holdfast.Errorf(holdfast.KindUnavailable, op, "cannot download %s: %w", holdfast.Quote(url), err).
			WithHint("set npm_config_registry to use another registry")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return out(err)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return out(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return out(errors.New(resp.Status))
	}
	f, err := os.Create(to)
	if err != nil {
		return unavailable(err)
	}
	defer f.Close()
	sum := sha512.New()
	body := &counter{r: io.LimitReader(resp.Body, maxPacked+1), total: resp.ContentLength, tell: tell}
	if _, err := io.Copy(io.MultiWriter(f, sum), body); err != nil {
		return out(err)
	}
	if got := "sha512-" + base64.StdEncoding.EncodeToString(sum.Sum(nil)); got != k.Integrity {
		return holdfast.Errorf(holdfast.KindDenied, op, "%s is not the pinned package: its integrity is %s, but %s is pinned", holdfast.Quote(url), got, k.Integrity).
			WithHint("try another registry; do not install the package by hand")
	}
	return unavailable(f.Close())
}

type counter struct {
	r          io.Reader
	got, total int64
	tell       func(got, total int64)
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.got += int64(n)
	c.tell(c.got, c.total)
	return n, err
}

// unpack unpacks the files of a package into a tree. It accepts only directories and plain files
// with paths inside the package's directory. The pinned packages contain nothing else, so any
// other entry is an error.
func unpack(packed string, k pkg, tree string) error {
	bad := func(format string, args ...any) error {
		return holdfast.Errorf(holdfast.KindDenied, op, "package "+holdfast.Quote(k.Name)+": "+format, args...)
	}
	f, err := os.Open(packed)
	if err != nil {
		return unavailable(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return bad("its archive cannot be read: %w", err)
	}
	root, err := os.OpenRoot(tree)
	if err != nil {
		return unavailable(err)
	}
	defer root.Close()
	var size, taken int64
	for r, n := tar.NewReader(z), 0; ; n++ {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return bad("its archive cannot be read: %w", err)
		}
		if size += head.Size; n >= maxEntries || size > maxUnpacked {
			return bad("it has too many entries or unpacks to too many bytes")
		}
		top, name, ok := strings.Cut(head.Name, "/")
		switch {
		case head.Typeflag == tar.TypeDir:
			continue
		case head.Typeflag != tar.TypeReg:
			return bad("%s is neither a file nor a directory", holdfast.Quote(head.Name))
		case !ok || top == "" || !fs.ValidPath(name) || name == ".":
			return bad("the entry %s has an invalid path", holdfast.Quote(head.Name))
		case len(k.Only) > 0 && !slices.Contains(k.Only, name):
			continue
		}
		if err := place(root, path.Join(k.Into, name), head, r); err != nil {
			return bad("cannot unpack %s: %w", holdfast.Quote(head.Name), err)
		}
		taken++
	}
	if taken == 0 {
		return bad("it contains no files to install")
	}
	return nil
}

// place writes one file of a package. Boxes read the file as another user, so its mode must allow that.
func place(root *os.Root, name string, head *tar.Header, r io.Reader) error {
	mode := fs.FileMode(0o644)
	if head.Mode&0o111 != 0 || programs[path.Base(name)] {
		mode = 0o755
	}
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	return durable.Write(f, func(f *os.File) error {
		_, err := io.Copy(f, r)
		// chmod is not affected by the umask of the process.
		return errors.Join(err, f.Chmod(mode))
	})
}

// programs are names of files that must be executable even if their packages do not mark them so.
var programs = map[string]bool{"claude": true, "node": true, "opencode": true}
