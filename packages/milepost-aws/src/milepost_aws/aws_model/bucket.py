"""S3 buckets in memory: objects, and uploads in parts."""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import md5, sha256
from typing import Any
from uuid import uuid4

from milepost_aws.aws_model.errors import AwsError


class BucketModel:
    """One bucket: its objects by key, and its unfinished uploads."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.objects: dict[str, tuple[bytes, dict[str, Any]]] = {}
        self.uploads: dict[str, tuple[str, dict[int, bytes]]] = {}


class S3:
    """The operations of S3 that blob stores use."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.buckets: dict[str, BucketModel] = {}
        self._clock = clock

    def bucket(self, name: Any) -> BucketModel:
        found = self.buckets.get(str(name))
        if found is None:
            raise AwsError("NoSuchBucket", "The specified bucket does not exist", 404)
        return found

    def create_bucket(self, params: dict[str, Any]) -> dict[str, Any]:
        self.buckets.setdefault(params["Bucket"], BucketModel(params["Bucket"]))
        return {"Location": f"/{params['Bucket']}"}

    def head_bucket(self, params: dict[str, Any]) -> dict[str, Any]:
        self.bucket(params["Bucket"])
        return {}

    def put_object(self, params: dict[str, Any]) -> dict[str, Any]:
        body = _bytes(params.get("Body", b""))
        return self._put(
            self.bucket(params["Bucket"]), params["Key"], body, params.get("Metadata", {})
        )

    def _put(
        self, bucket: BucketModel, key: str, body: bytes, metadata: dict[str, str]
    ) -> dict[str, Any]:
        head = {
            "ETag": f'"{md5(body, usedforsecurity=False).hexdigest()}"',
            "ChecksumSHA256": _checksum(body),
        }
        at = datetime.fromtimestamp(int(self._clock()), UTC)
        bucket.objects[key] = body, {**head, "LastModified": at, "Metadata": dict(metadata)}
        return head

    def get_object(self, params: dict[str, Any]) -> dict[str, Any]:
        from botocore.response import StreamingBody

        body, head = self._object(params)
        if params.get("IfMatch") not in (None, head["ETag"]):
            raise AwsError(
                "PreconditionFailed",
                "At least one of the pre-conditions you specified did not hold",
                412,
            )
        if "Range" in params:
            first, _, last = params["Range"].removeprefix("bytes=").partition("-")
            end = min(int(last or len(body)) + 1, len(body))
            if int(first) >= len(body):
                raise AwsError("InvalidRange", "The requested range is not satisfiable", 416)
            head = {**head, "ContentRange": f"bytes {first}-{end - 1}/{len(body)}"}
            body = body[int(first) : end]
        return {
            **head,
            "ContentLength": len(body),
            "Body": StreamingBody(io.BytesIO(body), len(body)),
        }

    def head_object(self, params: dict[str, Any]) -> dict[str, Any]:
        try:
            body, head = self._object(params)
        except AwsError:
            raise AwsError("404", "Not Found", 404) from None
        return {**head, "ContentLength": len(body)}

    def _object(self, params: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
        found = self.bucket(params["Bucket"]).objects.get(params["Key"])
        if found is None:
            raise AwsError("NoSuchKey", "The specified key does not exist.", 404)
        return found

    def copy_object(self, params: dict[str, Any]) -> dict[str, Any]:
        body, head = self._object(params["CopySource"])
        if params.get("CopySourceIfMatch") not in (None, head["ETag"]):
            raise AwsError(
                "PreconditionFailed",
                "At least one of the pre-conditions you specified did not hold",
                412,
            )
        return {
            "CopyObjectResult": self._put(
                self.bucket(params["Bucket"]), params["Key"], body, head["Metadata"]
            )
        }

    def delete_object(self, params: dict[str, Any]) -> dict[str, Any]:
        if "IfMatch" in params and self._object(params)[1]["ETag"] != params["IfMatch"]:
            raise AwsError(
                "PreconditionFailed",
                "At least one of the pre-conditions you specified did not hold",
                412,
            )
        self.bucket(params["Bucket"]).objects.pop(params["Key"], None)
        return {}

    def list_objects_v2(self, params: dict[str, Any]) -> dict[str, Any]:
        objects = self.bucket(params["Bucket"]).objects
        after, most = params.get("ContinuationToken", ""), params.get("MaxKeys", 1_000)
        names = sorted(
            name for name in objects if name.startswith(params.get("Prefix", "")) and name > after
        )
        found = [
            {"Key": name, "Size": len(objects[name][0]), "ETag": objects[name][1]["ETag"]}
            for name in names[:most]
        ]
        more = {"NextContinuationToken": names[most - 1]} if len(names) > most else {}
        return {
            "KeyCount": len(found),
            "IsTruncated": bool(more),
            **more,
            **({"Contents": found} if found else {}),
        }

    # In parts -------------------------------------------------------------------------------------
    def create_multipart_upload(self, params: dict[str, Any]) -> dict[str, Any]:
        id = uuid4().hex
        self.bucket(params["Bucket"]).uploads[id] = params["Key"], {}
        return {"UploadId": id, "Bucket": params["Bucket"], "Key": params["Key"]}

    def upload_part(self, params: dict[str, Any]) -> dict[str, Any]:
        body = _bytes(params.get("Body", b""))
        self._upload(params)[1][params["PartNumber"]] = body
        return {
            "ETag": f'"{md5(body, usedforsecurity=False).hexdigest()}"',
            "ChecksumSHA256": _checksum(body),
        }

    def complete_multipart_upload(self, params: dict[str, Any]) -> dict[str, Any]:
        key, parts = self._upload(params)
        named = [part["PartNumber"] for part in params.get("MultipartUpload", {}).get("Parts", ())]
        if not named or any(number not in parts for number in named):
            raise AwsError("InvalidPart", "One or more of the specified parts could not be found.")
        bucket = self.bucket(params["Bucket"])
        head = self._put(bucket, key, b"".join(parts[number] for number in named), {})
        whole = _checksum(b"".join(sha256(parts[number]).digest() for number in named))
        bucket.objects[key][1]["ChecksumSHA256"] = f"{whole}-{len(named)}"
        del bucket.uploads[params["UploadId"]]
        return {"Bucket": bucket.name, "Key": key, "ETag": head["ETag"]}

    def abort_multipart_upload(self, params: dict[str, Any]) -> dict[str, Any]:
        self._upload(params)
        del self.bucket(params["Bucket"]).uploads[params["UploadId"]]
        return {}

    def list_multipart_uploads(self, params: dict[str, Any]) -> dict[str, Any]:
        uploads = [
            {"UploadId": id, "Key": key}
            for id, (key, _) in self.bucket(params["Bucket"]).uploads.items()
        ]
        return {
            "Bucket": params["Bucket"],
            "IsTruncated": False,
            **({"Uploads": uploads} if uploads else {}),
        }

    def _upload(self, params: dict[str, Any]) -> tuple[str, dict[int, bytes]]:
        found = self.bucket(params["Bucket"]).uploads.get(params["UploadId"])
        if found is None:
            raise AwsError("NoSuchUpload", "The specified upload does not exist.", 404)
        return found


def _bytes(body: Any) -> bytes:
    if hasattr(body, "read"):
        body = body.read()
    return body.encode() if isinstance(body, str) else bytes(body)


def _checksum(body: bytes) -> str:
    return b64encode(sha256(body).digest()).decode()
