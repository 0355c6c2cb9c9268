package backup

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"

	"github.com/holdfast-run/holdfast"
)

// KeyNames are the files of a data directory with keys that an archive holds only encrypted, if at all.
var KeyNames = []string{"secrets.key", "audit.key"}

// PutKeys writes the keys, by name of their files, as the beginning of an archive, encrypted with a key that
// is derived from a passphrase. What a Writer writes follows it.
func PutKeys(out io.Writer, passphrase string, keys map[string][]byte) error {
	to, err := age.NewScryptRecipient(passphrase)
	if err != nil {
		return sealing(err)
	}
	var sealed bytes.Buffer
	w, err := age.Encrypt(&sealed, to)
	if err != nil {
		return sealing(err)
	}
	if err := errors.Join(json.NewEncoder(w).Encode(keys), w.Close()); err != nil {
		return sealing(err)
	}
	z, err := zstd.NewWriter(out, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return sealing(err)
	}
	// The tar archive has no end here: it goes on with what the server writes.
	t := tar.NewWriter(z)
	if err := t.WriteHeader(&tar.Header{Name: keysName, Mode: 0o600, Size: int64(sealed.Len()), Format: tar.FormatPAX}); err != nil {
		return err
	}
	if _, err := t.Write(sealed.Bytes()); err != nil {
		return err
	}
	return errors.Join(t.Flush(), z.Close())
}

func sealing(err error) error {
	return holdfast.Errorf(holdfast.KindInternal, "backup", "the keys of the backup cannot be encrypted: %w", err)
}

// OpenKeys returns the keys of an archive, by name of their files. The error is denied for a wrong
// passphrase.
func OpenKeys(sealed []byte, passphrase string) (map[string][]byte, error) {
	with, err := age.NewScryptIdentity(passphrase)
	if err != nil {
		return nil, wrong()
	}
	r, err := age.Decrypt(bytes.NewReader(sealed), with)
	if err != nil {
		return nil, wrong()
	}
	keys := map[string][]byte{}
	if err := json.NewDecoder(io.LimitReader(r, mostKeys)).Decode(&keys); err != nil {
		return nil, damaged("its keys cannot be decoded: %w", err)
	}
	return keys, nil
}

func wrong() error {
	return holdfast.Errorf(holdfast.KindDenied, "restore", "the keys of the backup cannot be decrypted with this passphrase").
		WithHint("try another passphrase, or restore without the keys: --without-keys")
}
