package direct

import (
	"context"
	"io"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// ListFiles lists a directory, or describes a file; relative paths are relative to the workspace.
func (w *Work) ListFiles(ctx context.Context, id holdfast.SessionID, path string) (holdfast.FileList, error) {
	var out holdfast.FileList
	err := w.look(ctx, id, func(ctx context.Context, box *sandbox.Box) error {
		info, err := box.Stat(ctx, wire.PathRequest{Path: path})
		if err != nil {
			return err
		}
		list, err := wire.ListAnswer{}, error(nil)
		if info.Type == wire.TypeDir || info.Type == wire.TypeSymlink {
			list, err = box.List(ctx, wire.ListRequest{Path: path})
		}
		if info.Type != wire.TypeDir && (info.Type != wire.TypeSymlink || err != nil) {
			// The path is a file, or a symbolic link to a file.
			out.Entries = []holdfast.FileInfo{fileInfo(info)}
			return nil
		}
		out.Entries = make([]holdfast.FileInfo, len(list.Entries))
		for i, f := range list.Entries {
			out.Entries[i] = fileInfo(f)
		}
		out.Truncated = list.Truncated
		return err
	})
	return out, err
}

func fileInfo(f wire.FileInfo) holdfast.FileInfo {
	return holdfast.FileInfo{Path: f.Path, Type: string(f.Type), Size: f.Size, Mode: f.Mode, ModTime: f.ModTime, Target: f.Target}
}

// ReadFile copies a regular file to a writer.
func (w *Work) ReadFile(ctx context.Context, id holdfast.SessionID, path string, to io.Writer) error {
	out := &counted{w: to}
	var err error
	return w.look(ctx, id, func(ctx context.Context, box *sandbox.Box) error {
		if out.n == 0 {
			_, err = box.Read(ctx, wire.ReadRequest{Path: path}, out)
		}
		return err
	})
}

// counted is a writer that counts the bytes that it wrote.
type counted struct {
	w io.Writer
	n int64
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// WriteFile creates or replaces a file, with its parent directories.
func (w *Work) WriteFile(ctx context.Context, id holdfast.SessionID, path string, data []byte, mode uint32) (holdfast.FileInfo, error) {
	var out holdfast.FileInfo
	if len(data) > maxFile {
		return out, holdfast.Errorf(holdfast.KindTooLarge, "files.put", "the file has %d bytes, more than the limit of %d bytes", len(data), maxFile)
	}
	if mode&^0o777 != 0 {
		return out, holdfast.Errorf(holdfast.KindInvalid, "files.put", "the file mode %o has bits other than the permission bits", mode)
	}
	err := w.mutate(ctx, id, func(ctx context.Context, box *sandbox.Box, call sandbox.Call) error {
		if _, err := box.Write(ctx, call, wire.WriteRequest{Path: path, Mode: mode, Parents: true}, data); err != nil {
			return err
		}
		info, err := box.Stat(ctx, wire.PathRequest{Path: path})
		out = fileInfo(info)
		return err
	})
	return out, err
}

// RemoveFile removes a file, or with recursive a tree.
func (w *Work) RemoveFile(ctx context.Context, id holdfast.SessionID, path string, recursive bool) error {
	return w.mutate(ctx, id, func(ctx context.Context, box *sandbox.Box, call sandbox.Call) error {
		return box.Remove(ctx, call, wire.RemoveRequest{Path: path, Recursive: recursive})
	})
}

func (w *Work) mutate(ctx context.Context, id holdfast.SessionID, act func(context.Context, *sandbox.Box, sandbox.Call) error) error {
	return w.sessions.InBox(ctx, id, func(ctx context.Context, box *sandbox.Box) error {
		call, err := w.call()
		if err != nil {
			return err
		}
		defer box.Release(call.ID)
		return act(ctx, box, call)
	})
}
