package files

import (
	"io"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// Read copies bytes of a regular file to w, in pieces of at most 64 KiB. The limit 0 means no limit.
// If the offset is beyond the end of the file, Read copies nothing. It returns an error of w
// unchanged.
func (f *FS) Read(req wire.ReadRequest, w io.Writer) (wire.ReadAnswer, error) {
	const op = "file.read"
	var none wire.ReadAnswer
	if req.Offset < 0 || req.Limit < 0 {
		return none, holdfast.Errorf(holdfast.KindInvalid, op, "the offset %d and the limit %d of a read must not be negative", req.Offset, req.Limit)
	}
	path, err := f.door.resolve(op, req.Path)
	if err != nil {
		return none, err
	}
	file, err := f.door.openRegular(op, req.Path, path, unix.O_RDONLY)
	if err != nil {
		return none, err
	}
	defer file.close()
	if req.Offset > 0 {
		if _, err := unix.Seek(file.fd, req.Offset, io.SeekStart); err != nil {
			return none, fail(op, req.Path, err)
		}
	}
	ans := wire.ReadAnswer{Size: file.st.Size}
	if req.Where {
		if ans.Below, err = f.door.below(file.fd); err != nil {
			return none, fail(op, req.Path, err)
		}
	}
	buf := make([]byte, min(64<<10, wire.MaxFrame))
	for req.Limit == 0 || ans.Sent < req.Limit {
		piece := buf
		if left := req.Limit - ans.Sent; req.Limit > 0 && left < int64(len(piece)) {
			piece = piece[:left]
		}
		n, err := file.Read(piece)
		if n > 0 {
			if _, err := w.Write(piece[:n]); err != nil {
				return ans, err
			}
			ans.Sent += int64(n)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return ans, fail(op, req.Path, err)
		}
	}
	return ans, nil
}
