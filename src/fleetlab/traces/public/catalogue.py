"""Where public traces lie, and the checksums by which a copy is known to be the real one.

Addresses on GitHub name a commit, so that a file there never changes under its checksum. Checksums are those that the
owner prints (pai2020, philly) or those that copies of the owner's files at that commit agree on; where there is none, a
fetched file is said to be not verified.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from fleetlab.core import TraceError


@dataclass(frozen=True)
class File:
    """One file of a published trace: its address, and what is known of its content."""

    address: str
    sha256: str | None = None
    table: str | None = None  # SHA-256 of the one table inside, where the file is a tar.gz
    size: int | None = None

    @property
    def name(self) -> str:
        """What the file is called, there and here."""
        name = PurePosixPath(urlsplit(self.address).path).name
        if name in ("", "..") or "\\" in name:
            msg = f"no file name in the address: {self.address}"
            raise TraceError(msg)
        return name


@dataclass(frozen=True)
class PublicTrace:
    """A trace that its owner published, file by file."""

    name: str
    files: tuple[File, ...]
    then: str = ""  # what is left to do by hand


OSS = "https://aliopentrace.oss-cn-beijing.aliyuncs.com/v2020GPUTraces"
ALIBABA = "https://raw.githubusercontent.com/alibaba/clusterdata/0d0f3f1efdbf1add6a7bcc63676eafbd1eb11f71"
HELIOS = "https://raw.githubusercontent.com/S-Lab-System-Group/HeliosData/159f0caeec16600b9b6017862952a36aae01c43f"
ACME = "https://raw.githubusercontent.com/InternLM/AcmeTrace/f9fdf591b4876c2875a9e3d28adb1bda8120dfcb"
PHILLY = "https://media.githubusercontent.com/media/msr-fiddle/philly-traces/29a1b87fa2d9ed80b83c9e3a37f3a88d382b031d"

# Table: of the archive, of the CSV in it, of the header.
PAI = {
    "pai_job_table": (
        "5aad7f7caac501136d14ed6a48e40546f825d7b0617a3a4f337e2348fe0a6cb0",
        "379ecb3becaba347f44a53bf7eb53e54b185221b2a0338a3f828828d269ba96c",
        "3ac33aefab9a4d81338794fa145fe280594a379444961a9c639f00181c508567",
    ),
    "pai_task_table": (
        "cd1d6dc3215d2a8607ccf6b6dd952b5db776df86926c73259fea7c1499ac40e5",
        "6954802b457305f8a9e480ef97c40060baee59649fd3adc62c5a1e048aa058de",
        "978bbaabfc8695874c605c01c144b2977f611ceca73aeb72189988cdfbfb0a9c",
    ),
    "pai_instance_table": (
        "1bf1e423a7ce3f8d086699801c362fd56a7182abdb234139e5ebbed97995ca06",
        "b179f7d7e0927a6663d719b728c92640447c5a0fc3c6e4edff31e7207ab9dd17",
        "51f2585178eaaf30ad8cc88c50ec9243b0f7d9603603ab7602efccb7aa34f6b0",
    ),
    "pai_sensor_table": (
        "9a0b82e8bdf3949281e4ba1423d9b4b34847e52799eecb138966de46da69c7a0",
        "12dd9929b70f3efe18d1279d9873e3a519c64f431613b23b059ed8c46a376dd7",
        "d3e26eb31fb3b833821373b487266312151a3bfb2f18fc62017a438546cc1362",
    ),
    "pai_group_tag_table": (
        "722fef30b7fb7aa50dabd79155614b5423a9d65cf45a9b26c590d57725423a14",
        "d23fcb56d88b2976fda4a62708d77b2a8c98635c4b443f100ed5553d4cd07fbe",
        "320470fa8f77182bc6052c95ff359b75542c748e9516b3d8148a6e2bafc1798d",
    ),
    "pai_machine_spec": (
        "cc0d38a4045af1b1af8179de8b1b54b1ddd995e6160d6d061a6b1000f1276c2d",
        "251e9e33649155a6a935fdc1dc0e90cd4698206936b60bd8fce60ff2ccd51439",
        "4c9ea25914ff3f0b73be9ff223fb91002e787138165abd3f584ba37281448e1c",
    ),
    "pai_machine_metric": (
        "53ad917193d3b1dd0f3055e723148b1f36c2f81789b014ea2930a7875892eef5",
        "8b6592daab0373ef7fec730198b4df5891b1722c2ab4c7016249166e131402d3",
        "300342613103c6192490f8990958903d837053c13adbc6c094d677074fbbb7ad",
    ),
}

OPENB = {
    "openb_node_list_all_node.csv": "5a85c2af79c66a1efff8bbcbda430400aae56d8431370d738480967e1a9c6b15",
    "openb_node_list_gpu_node.csv": "2beca64b4d3dfa342036a34b56a495c6cef9225db836c81f541282cb1df320b5",
    "openb_pod_list_default.csv": "1ee7ed79c27a3b0861cda8ddba86a004c6aba904caafa329a76ae93ca63834a8",
    "openb_pod_list_cpu050.csv": "747f43247bffc2b0bb081d7f61f0705ca8d390dafc0b647e642c92f3baf3ba1e",
    "openb_pod_list_gpushare40.csv": "d83ce79a4eb6987524bedbb0c65e41aed3a36bf6c1b78b86234c3687a07e1d40",
    "openb_pod_list_gpuspec10.csv": "2dc7e4cb9480484f08539720b433a9ec9ab5d76b396f3f7557c53a2ff78a7611",
    "openb_pod_list_multigpu20.csv": "d9ec6f6c74fb980cc0b81239470c6353fceea077ea9abd610003b604c7cc2b01",
}

GENAI = {
    "lora_request_trace.csv": "263fb88f1095f62d360cf89ded8cfc24fa2c5d111c1b16e7aaa9ccbfc4b37d78",
    # Two that were published more than once, so that a copy does not tell which is at this commit.
    "basemodel_update_latency_anon.tar.gz": None,
    "lora_update_latency_anon.tar.gz": None,
    "controlnet_latency_data_anon.tar.gz": "3d6fe3248084069835ee50753029800455b93e7c9037fca2068d19db096e61dd",
    "data_trace_processed.tar.gz": "6ae9212039410957a301574d419a5744d5285057805ab5094536198bef9d43fb",
    "model_predict_data_anon.tar.gz": "9d97e16c2f2e2ef009edc8e67a4947bb708432123873e417a69089e4c864e87d",
    "pipeline_inference_data_anon.tar.gz": "4899bd06c7089764046ae8b1ba5dfd243e47062c96d9ff34f7d344558602bbd5",
    "pipeline_update_latency_anon.tar.gz": "464bfc59ba7d35c68e30c2cb77303ed303e9832761f8d12a45f80dda1c8dbb79",
    "pod_gpu_duty_cycle_anon.tar.gz": "c4070218189b2811995c30dd9fefb8a793a83a54dccebe7b41cab2d123916855",
    "pod_gpu_memory_used_bytes_anon.tar.gz": "662be431f2d24a003c3a0b28383155fccceefb7e83dea14f912166edc9129132",
    "pod_memory_util_anon.tar.gz": "0ccfb52821432dd6eed546ae772299c9c9fa9bbed952eb44953c41564afcfa7c",
    "qps.tar.gz": "6bd1a21e3f916740df1e768fc43346148f1598b15fcc68c658a8faf1f87461c6",
    "queue_rt_raw_anon.tar.gz": "419deaccd1cc33ef3050b676f75a49af726c169de62ae29344ea2fdf1d4f3819",
    "queue_size_raw_anon.tar.gz": "585499916ed94900921e72c01213a618cad52443fc3f20f1e0e7ad4c4bb11798",
}


def _pai() -> tuple[File, ...]:
    archives = [File(f"{OSS}/{name}.tar.gz", packed, table) for name, (packed, table, _) in PAI.items()]
    headers = [
        File(f"{ALIBABA}/cluster-trace-gpu-v2020/data/{name}.header", header) for name, (_, _, header) in PAI.items()
    ]
    return (*archives, *headers)


_ALL = (
    PublicTrace("pai2020", _pai()),
    PublicTrace(
        "openb2023",
        tuple(File(f"{ALIBABA}/cluster-trace-gpu-v2023/csv/{name}", sha256) for name, sha256 in OPENB.items()),
    ),
    PublicTrace(
        "dlrm2025",
        (
            File(
                f"{ALIBABA}/cluster-trace-gpu-v2025/disaggregated_DLRM_trace.csv",
                "fb17bc4b3f412d5280f70f04a1bdf2adfc4429d1e61237a5b106e86206414295",
            ),
        ),
    ),
    PublicTrace(
        "spot2026",
        (
            File(
                f"{ALIBABA}/cluster-trace-v2026-spot-gpu/job_info_df.csv",
                "113ccee4c28f5c3bbaaca974cd164b9280b7d4c39e53b745443b28eea05e03dd",
                size=23_055_929,
            ),
            File(
                f"{ALIBABA}/cluster-trace-v2026-spot-gpu/node_info_df.csv",
                "1aba161961a5a4a1a61aa581383c5e5abe3400b59f8597ba8c4eef7597bc9d18",
                size=78_330,
            ),
        ),
    ),
    PublicTrace(
        "genai2026",
        tuple(File(f"{ALIBABA}/cluster-trace-v2026-GenAI/{name}", sha256) for name, sha256 in GENAI.items()),
    ),
    PublicTrace(
        "philly",
        (
            File(
                f"{PHILLY}/trace-data.tar.gz",
                "2037ccf63a725a02be718b0e1aeee6142c90b7f62d0d849295120e9f6ba13d2c",
                size=1_055_988_361,
            ),
        ),
    ),
    PublicTrace(
        "helios",
        (
            File(
                f"{HELIOS}/data.zip",
                "3d22a5f6c0ae669e2fcbfe4200fa9c48664507bc397c677bad8f085222c032ac",
                size=36_437_672,
            ),
        ),
        then="unpack data.zip: the reader takes data/Venus, data/Earth, data/Saturn or data/Uranus",
    ),
    PublicTrace(
        "acme",
        (
            File(f"{ACME}/data/job_trace/trace_seren.csv"),
            File(f"{ACME}/data/job_trace/trace_kalos.csv"),
        ),
        then="they are two clusters: read trace_seren.csv or trace_kalos.csv",
    ),
)
PUBLISHED = {published.name: published for published in _ALL}
